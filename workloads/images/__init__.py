"""Images in folders of files: how they are found, indexed, decoded, cropped and augmented."""
