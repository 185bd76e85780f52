"""numpy, with one thread: matrices are small here, and threads that wait for each other take processor time from the tests beside. It is imported
before anything else that imports numpy; programs that a test starts see nothing of it.
"""
import os

os.environ['OPENBLAS_NUM_THREADS'] = '1'
import numpy as np  # noqa: F401

del os.environ['OPENBLAS_NUM_THREADS']
