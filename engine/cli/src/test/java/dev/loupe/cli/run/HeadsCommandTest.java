package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.model.Golden;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code loupe heads} on the demo model. */
class HeadsCommandTest {
  private static final Path TEXT = Golden.TEST_DATA.resolve("golden/heldout/text.txt");

  @TempDir Path folder;

  private static Ran heads(Object... args) {
    Object[] all = new Object[args.length + 3];
    all[0] = "heads";
    all[1] = "--backend";
    all[2] = "cpu";
    System.arraycopy(args, 0, all, 3, args.length);
    return Ran.loupe(all);
  }

  /** Some windows of the text: each takes a tenth of a second or more. */
  private Path beginning() throws Exception {
    return Files.writeString(folder.resolve("text"), Files.readString(TEXT).substring(0, 3000));
  }

  /** The first words of the lines of the table. */
  private static List<String> order(Ran ran) {
    return ran.out()
        .lines()
        .map(line -> line.split(" ", 2)[0])
        .filter(word -> word.matches("[0-9]+\\.[0-9]+"))
        .toList();
  }

  @Test
  void findsTheInductionHeads() throws Exception {
    Path text = beginning();
    Ran ran = heads("--file", text).well();
    assertEquals("", ran.err());
    assertEquals(18, order(ran).size());
    assertTrue(List.of("5.0", "5.1", "5.2").containsAll(order(ran).subList(0, 3)), ran.out());
    assertEquals("3.1", order(ran).get(3));
    assertTrue(ran.out().contains("\n4.0   previous token  "), ran.out());
    assertTrue(ran.out().contains("No first token (sink) head above 0.4; strongest 5."), ran.out());
    assertTrue(ran.out().lines().allMatch(line -> line.length() <= 80), ran.out());
    assertEquals("4.0", order(heads("--file", text, "--sort", "PREV").well()).getFirst());
    assertEquals("0.0", order(heads("--sort", "head").well()).getFirst());
  }

  @Test
  void needsNoText() {
    String table = heads().well().out();
    assertTrue(table.startsWith("all columns: on repeated random tokens"), table);
    assertEquals(table, Ran.reading("", "heads", "--backend", "cpu", "-").well().out());
    String few = Ran.reading("hello", "heads", "--backend", "cpu").well().out();
    assertTrue(few.contains("the text has 3 tokens, too few"), few);
  }

  @Test
  void forPrograms() throws Exception {
    JsonObject json = heads("--json", "--file", beginning()).well().json().getFirst();
    assertEquals(64, json.getAsJsonObject("model").get("sha256").getAsString().length());
    JsonObject first = json.getAsJsonArray("heads").get(0).getAsJsonObject();
    assertEquals(5, first.get("layer").getAsInt());
    assertEquals("induction", first.get("role").getAsString());
    List<String> csv = heads("--csv", "--ids", "1,2,3").well().out().lines().toList();
    assertEquals(19, csv.size());
    assertTrue(csv.get(1).startsWith("5,"), csv.get(1));
  }

  @Test
  void badInputIsOneSentence() throws Exception {
    heads("--json", "--csv").refused(ExitCode.BAD_USAGE, "--json", "--csv");
    heads("--sort", "beauty").refused(ExitCode.BAD_USAGE, "beauty", "induction, prev");
    heads("x", "--ids", "1").refused(ExitCode.BAD_USAGE, "one of TEXT");
    heads("--ids", "1,4000").refused(ExitCode.BAD_USAGE, "token id 4000");
    heads("--file", folder.resolve("none")).refused(ExitCode.BAD_INPUT, "does not exist");
    Path latin = folder.resolve("latin");
    Files.write(latin, new byte[] {(byte) 0xE9, 'a'});
    heads("--file", latin).refused(ExitCode.BAD_INPUT, "not UTF-8");
  }
}
