"""What several commands share: arguments, parsing, tables, progress, and the terminal."""
