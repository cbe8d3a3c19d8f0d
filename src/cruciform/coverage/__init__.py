"""Coverage as a number: every network of the libraries that users have, converted, or the reason why not."""
