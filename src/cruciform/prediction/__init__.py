"""Prediction: a trained network applied to many images, in this process or on a Ray cluster."""
