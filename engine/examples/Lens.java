import dev.loupe.Loupe;
import dev.loupe.generate.Prompt;
import java.nio.file.Path;

/** Prints what the model would say after each layer: java Lens.java MODEL TEXT. */
void main(String[] args) throws Exception {
  try (Loupe loupe = Loupe.open(Path.of(args[0]))) {
    var lens = loupe.lens(Prompt.text(args[1]), -1, -1, 3); // of the last token, the likeliest next
    IO.println("the model says " + lens.label());
    for (int layer = 0; layer < lens.layers().size(); layer++) {
      var guess = lens.layers().get(layer);
      IO.println(
          "after %d layers: %s, rank of %s: %d"
              .formatted(
                  layer,
                  guess.top().stream().map(token -> token.label()).toList(),
                  lens.label(),
                  guess.rank()));
    }
  }
}
