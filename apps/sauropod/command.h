// One file per subcommand (tokenizer_train.cpp, data_pack.cpp, train.cpp, …), each with one function
// that declares it. A command parses its arguments, calls the rooms, prints, and holds no logic of its
// own. Callbacks report failure by throwing base::Error; main turns it into a message and exit code. A command that ends
// with another program's exit code throws CLI::RuntimeError with it.
#pragma once

namespace CLI {
class App;
}

namespace sauropod::apps {

void add_tokenizer(CLI::App& app);   // tokenizer train | encode | decode | inspect
void add_data(CLI::App& app);        // data pack | inspect
void add_train(CLI::App& app);       // train RECIPE
void add_eval(CLI::App& app);        // eval
void add_generate(CLI::App& app);    // generate
void add_checkpoint(CLI::App& app);  // checkpoint ls | show | verify | export
void add_config(CLI::App& app);      // config show
void add_report(CLI::App& app);      // report
void add_launch(CLI::App& app);      // launch -n N -- COMMAND

}  // namespace sauropod::apps
