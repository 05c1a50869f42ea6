"""One file per verb, each with its Lua scripts in `lua/`. `engine.py` says which runs which call, in which order."""
