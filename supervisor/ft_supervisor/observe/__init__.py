"""What is left for people and programs to see: the verdict's file and the journal. Files only; no torch, no store."""
