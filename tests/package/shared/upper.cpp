int in_core();
int in_upper();
int in_upper() { return in_core() + 2; }
