"""Prediction: a trained network applied to many images, here or on a Ray cluster."""
