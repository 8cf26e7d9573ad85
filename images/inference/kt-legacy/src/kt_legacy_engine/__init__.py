"""The engine `kt-legacy`: KTransformers 0.2.1 behind a serving layer of ours.

Two processes. The first answers HTTP, samples and decodes text; it never imports torch. The second
holds the model: the engine's C++ code keeps the interpreter to itself for seconds at a time, in
which a server beside it could answer nobody.
"""

# health.py runs every few seconds and reads this: nothing heavy may be imported here.
DEFAULT_PORT = 8000
