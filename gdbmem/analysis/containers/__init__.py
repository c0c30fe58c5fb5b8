"""Following C++ containers through raw memory."""
