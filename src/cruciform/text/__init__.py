"""Text for people: wording, tables, and what a terminal must not obey."""
