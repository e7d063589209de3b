"""What is left for people and programs to see: the verdict's file. Files only; no torch, no store."""
