#include "cli/cli.h"

int main(int argc, char** argv) { return megatoken::run_program({argv + 1, argv + argc}); }
