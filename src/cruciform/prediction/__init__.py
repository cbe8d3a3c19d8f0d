"""What a trained network says to many images: in this process, or on a Ray cluster."""
