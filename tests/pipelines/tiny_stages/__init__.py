"""A real pipeline of three tiny stages, so that the adapter and the runner are really run in tests."""
