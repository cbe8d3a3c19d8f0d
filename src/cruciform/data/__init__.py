"""Images and volumes: sources, sample order, transforms, batches, shards."""
