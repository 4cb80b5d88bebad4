"""Images in folders of files: search, index, decoding, crops and augmentation."""
