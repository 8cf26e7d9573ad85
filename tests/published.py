"""What hubs publish of models that are too large to have here."""

# unsloth/DeepSeek-R1-GGUF: the nine shards of Q4_K_M, byte for byte.
R1_Q4_K_M = (
    48_339_779_936,
    49_429_396_320,
    49_527_312_640,
    48_272_509_536,
    49_422_027_488,
    48_272_509_536,
    49_429_396_320,
    46_938_773_696,
    14_798_482_144,
)
