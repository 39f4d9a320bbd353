"""What each command does, as a function for scripts and studies: results and files, no prints."""
