"""The paper's networks, each a row of data, with a card of its published numbers. One file a family."""
