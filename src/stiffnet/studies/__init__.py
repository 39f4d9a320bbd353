"""One file for each question that the papers answer: declarations, and how an answer is judged."""
