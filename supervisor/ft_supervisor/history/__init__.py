"""What happened in a run, told from its journals.
Pure: lines in, a Story out; opens no file but in read_run."""
