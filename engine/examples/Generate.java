import dev.loupe.Loupe;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;

/** Writes two continuations of a prompt as they come: java Generate.java MODEL PROMPT. */
void main(String[] args) throws Exception {
  try (Loupe loupe = Loupe.open(Path.of(args[0]))) {
    GenerateRequest request =
        GenerateRequest.text(args[1])
            .tokens(30)
            .samples(2)
            .sampling(Sampling.seeded(1).withTemperature(0.8).withTopK(40));
    StringBuilder first = new StringBuilder();
    request.listener(
        new GenerateRequest.Listener() {
          @Override
          public boolean text(int sample, String piece) {
            if (sample == 0) {
              first.append(piece); // a program with a screen shows it now
            }
            return true; // false ends the run
          }
        });
    for (var run : loupe.run(request)) {
      IO.println("%d: %s".formatted(run.sample(), run.text().replace("\n", "\\n")));
    }
    IO.println("heard: " + first.toString().replace("\n", "\\n"));
  }
}
