"""Fast structured transforms: Walsh-Hadamard, Fourier, circular convolution."""
