"""Commands about engines, predictions and reports."""
