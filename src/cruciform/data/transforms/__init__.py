"""What is done to a sample before a network sees it."""
