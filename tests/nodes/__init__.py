"""`make nodes`: a training on several nodes, each in a network of its own, with faults from a seeded plan."""
