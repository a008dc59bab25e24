"""Other tools' files: what is read of them, and what is written for them."""
