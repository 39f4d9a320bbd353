"""How stiff it was: functions of arrays and tensors, never of models, files or training."""
