"""The only folder that talks to the operating system by ctypes or asks which one it is."""
