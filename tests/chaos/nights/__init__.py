"""Nights of one channel, with faults and bad data."""
