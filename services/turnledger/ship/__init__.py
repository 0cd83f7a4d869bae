"""`ship`: follows the files of harnesses while they are written, and publishes what they tell. What a file means is `harness`'s to say."""
