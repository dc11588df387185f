// The main function of every program trainyard-NAME. The build says which verb it is.
namespace trainyard::cli {

class Arguments;
struct CommandLine;
int run_program(const char* name, void (*add)(Arguments, CommandLine&), int argc, char** argv);
void TRAINYARD_ADD_VERB(Arguments verb, CommandLine& line);

}  // namespace trainyard::cli

int main(int argc, char** argv) {
  return trainyard::cli::run_program(TRAINYARD_VERB, trainyard::cli::TRAINYARD_ADD_VERB, argc, argv);
}
