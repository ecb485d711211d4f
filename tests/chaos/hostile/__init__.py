"""Commands that are meant to fail, by the product's own declarations, and the rule that judges them."""
