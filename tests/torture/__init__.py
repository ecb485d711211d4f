"""`make torture`: break a small pipeline in every way that an operator meets, and count what is lost."""
