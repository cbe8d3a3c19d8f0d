"""Model directories: weights as safetensors, all else as JSON, no pickle, verified by checksums."""
