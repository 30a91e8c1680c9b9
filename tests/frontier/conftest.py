from hypothesis import settings

# Times of single examples say nothing on shared machines.
settings.register_profile("frontier", deadline=None)
settings.load_profile("frontier")
