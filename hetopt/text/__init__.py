"""Text from outside: parsing it within bounds, and saying what is wrong with it."""
