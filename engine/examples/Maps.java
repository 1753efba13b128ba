import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.export.AttentionFormat;
import dev.loupe.generate.Generation;
import java.nio.file.Path;

/** Prints what each token read most in one head, and saves the map: java Maps.java MODEL TEXT FILE. */
void main(String[] args) throws Exception {
  try (Loupe loupe = Loupe.open(Path.of(args[0]))) {
    Generation read = loupe.read(args[1], AttentionSelection.all().layers(4).heads(0));
    for (int query = 0; query < read.tokens().size(); query++) {
      float[] row = read.attention().row(4, 0, query); // [query + 1], sums to 1
      int best = 0;
      for (int key = 1; key <= query; key++) {
        best = row[key] > row[best] ? key : best;
      }
      IO.println(
          "%-10s reads %-10s %.2f"
              .formatted(read.tokens().get(query).label(), read.tokens().get(best).label(), row[best]));
    }
    AttentionFormat.of(Path.of(args[2])).write(read, Path.of(args[2]));
  }
}
