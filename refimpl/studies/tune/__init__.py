"""AccUDNN's tuner applied: the curve of batches, planned by names; a cluster, and original Caffe's memory."""
