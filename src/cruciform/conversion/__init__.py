"""Conversion: replace the convolutions of any network by layers of basis filters, with a conversion table."""
