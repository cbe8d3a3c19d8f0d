"""The order of a convolution's output channels: free wherever what reads them can be permuted with them."""
