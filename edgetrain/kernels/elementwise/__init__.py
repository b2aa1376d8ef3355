"""Elements alone: functions of one tensor or two, masks, dropout, copies."""
