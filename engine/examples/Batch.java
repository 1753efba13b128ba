import dev.loupe.Loupe;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;

/** Prints the perplexity of each line of a file, many in a pass: java Batch.java MODEL FILE. */
void main(String[] args) throws Exception {
  List<String> lines = Files.readAllLines(Path.of(args[1]));
  try (Loupe loupe = Loupe.open(Path.of(args[0]));
      var reader = loupe.batchReader(Optional.empty(), true, 1024)) {
    var texts = lines.stream().map(line -> loupe.tokenizer().encode(line, false)).iterator();
    var results = reader.read(texts);
    for (String line : lines) {
      var result = results.next();
      IO.println(
          result.error().isPresent()
              ? line + ": " + result.error().get()
              : "%s: %d tokens, perplexity %.1f".formatted(line, result.tokens(), result.perplexity()));
    }
  }
}
