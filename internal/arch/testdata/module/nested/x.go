package left_out
