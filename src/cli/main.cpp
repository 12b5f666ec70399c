#include "cli/cli.h"

int main(int argc, char** argv) { return megatoken::run_program({argv + (argc > 0 ? 1 : 0), argv + argc}); }
