"""`make nights`: consecutive nights of one channel, with faults and data from a seeded plan."""
