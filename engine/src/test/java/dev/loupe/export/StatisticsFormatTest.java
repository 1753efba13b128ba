package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.AttentionRollout;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class StatisticsFormatTest {
  @TempDir Path folder;

  /** Layers 1 and 3, head 2, three tokens, two keys: the numbers tell where they belong. */
  private static Generation run() {
    return run(Optional.empty(), Optional.empty());
  }

  /** Likewise with what the heads did: layer 1 looks at itself, layer 3 at the first token. */
  private static Generation withHeads() {
    int[] layers = {1, 3};
    HeadStatistics heads = HeadStatistics.ofText(layers, new int[] {2}, true);
    AttentionRollout rollout = AttentionRollout.allocate(2, 1, 3);
    heads.tokens(5, 6, 7);
    for (int layer : layers) {
      for (int query = 0; query < 3; query++) {
        float[] row = new float[3];
        row[layer == 1 ? query : 0] = 1;
        heads.value(layer, 2, query, 2 * query + 0.5f);
        heads.spread(layer, 2, 0, query, new float[] {layer, query});
        heads.row(layer, 2, 0, query, row);
        rollout.put(layer / 2, query, row);
      }
    }
    return run(Optional.of(heads), Optional.of(rollout));
  }

  private static Generation run(
      Optional<HeadStatistics> heads, Optional<AttentionRollout> rollout) {
    AttentionStatistics all = AttentionStatistics.allocate(new int[] {1, 3}, new int[] {2}, 3, 2);
    for (int layer : new int[] {1, 3}) {
      all.put(layer, 2, 0, new float[] {0, 0, 0, -1, 1, 0});
      all.put(layer, 2, 1, new float[] {layer + 0.25f, 0.5f, 1, 0, 0.75f, 0.25f});
      all.put(layer, 2, 2, new float[] {layer + 0.5f, 1.5f, 0, 2, 0.5f, 0.125f});
    }
    Generation maps = Runs.random(new int[] {1, 3}, new int[] {2}, 2, false, "a", "\"", "c");
    return new Generation(
        maps.model(),
        maps.sampling(),
        0,
        maps.text(),
        2,
        maps.tokens(),
        maps.finish(),
        0,
        Optional.empty(),
        Optional.empty(),
        Optional.of(all),
        heads,
        rollout,
        maps.timing());
  }

  @Test
  void aTableHasALineForEachRow() throws IOException {
    Path file = folder.resolve("s.csv");
    StatisticsFormat.CSV.write(run(), file);
    assertEquals(
        List.of(
            "layer,head,query,query_token,entropy,mean_distance,key1,weight1,key2,weight2",
            "1,2,0,\"a\",0.0,0.0,0,1.0,,",
            "1,2,1,\"\"\"\",1.25,0.5,1,0.75,0,0.25",
            "1,2,2,\"c\",1.5,1.5,0,0.5,2,0.125",
            "3,2,0,\"a\",0.0,0.0,0,1.0,,",
            "3,2,1,\"\"\"\",3.25,0.5,1,0.75,0,0.25",
            "3,2,2,\"c\",3.5,1.5,0,0.5,2,0.125"),
        Files.readAllLines(file));
  }

  @Test
  void theObjectHasAListForEachHead() throws IOException {
    Path file = folder.resolve("s.json");
    StatisticsFormat.JSON.write(run(), file);
    JsonObject json = JsonParser.parseString(Files.readString(file)).getAsJsonObject();
    assertEquals("loupe/1", json.get("schema").getAsString());
    assertEquals(
        "{\"layer\":3,\"head\":2,\"entropy\":[0.0,3.25,3.5],\"mean_distance\":[0.0,0.5,1.5],"
            + "\"top\":[[{\"key\":0,\"weight\":1.0}],"
            + "[{\"key\":1,\"weight\":0.75},{\"key\":0,\"weight\":0.25}],"
            + "[{\"key\":0,\"weight\":0.5},{\"key\":2,\"weight\":0.125}]]}",
        json.getAsJsonArray("stats").get(1).toString());
  }

  @Test
  void arraysAreWhatTheirNamesSay() throws IOException {
    Path file = folder.resolve("s.npz");
    StatisticsFormat.NPZ.write(run(), file);
    Npz npz = Npz.read(file);
    assertEquals("<f4 [2, 1, 3]", npz.get("entropy").kind());
    assertEquals(1.25f, npz.get("entropy").data().getFloat(4));
    assertEquals(3.5f, npz.get("entropy").data().getFloat(20));
    assertEquals("<f4 [2, 1, 3]", npz.get("mean_distance").kind());
    assertEquals(1.5f, npz.get("mean_distance").data().getFloat(8));
    assertEquals("<i4 [2, 1, 3, 2]", npz.get("top_keys").kind());
    assertEquals(-1, npz.get("top_keys").data().getInt(4));
    assertEquals(2, npz.get("top_keys").data().getInt(20));
    assertEquals("<f4 [2, 1, 3, 2]", npz.get("top_weights").kind());
    assertEquals(0.125f, npz.get("top_weights").data().getFloat(20));
    assertEquals("<i8 [3,]", npz.get("token_ids").kind());
    assertEquals(3, npz.get("layers").data().getInt(4));
  }

  @Test
  void aTableRepeatsTheScoresOfAHead() throws IOException {
    Path file = folder.resolve("s.csv");
    StatisticsFormat.CSV.write(withHeads(), file);
    List<String> lines = Files.readAllLines(file);
    assertEquals(7, lines.size());
    assertTrue(
        lines
            .getFirst()
            .endsWith(
                ",key2,weight2,head_entropy,head_normalised_entropy,head_mean_distance,"
                    + "head_first_token,head_self,head_previous_token,head_duplicate_token,"
                    + "head_induction,head_weighted_norm,head_first_token_by_norm"),
        lines.getFirst());
    // entropy 1 of log 2 and log 3; nothing is repeated; norms 0.5, 2.5, 4.5
    assertTrue(
        lines.get(1).endsWith(",1.0,,,1.0,1.1764672,1.0,0.0,1.0,0.0,,,2.5,0.0"), lines.get(1));
    assertTrue(lines.get(6).endsWith(",1.0,1.0,0.0,0.5,,,0.5,1.0"), lines.get(6));
  }

  @Test
  void theObjectHasTheScoresAndEdgesOfAHead() throws IOException {
    Path file = folder.resolve("s.json");
    StatisticsFormat.JSON.write(withHeads(), file);
    JsonObject json = JsonParser.parseString(Files.readString(file)).getAsJsonObject();
    JsonObject first = json.getAsJsonArray("stats").get(0).getAsJsonObject();
    assertEquals(
        "{\"entropy\":1.0,\"normalised_entropy\":1.1764672,\"mean_distance\":1.0,"
            + "\"first_token\":0.0,\"self\":1.0,\"previous_token\":0.0,\"duplicate_token\":null,"
            + "\"induction\":null,\"weighted_norm\":2.5,\"first_token_by_norm\":0.0}",
        first.get("scores").toString());
    assertEquals(
        "[{\"query\":1,\"key\":1,\"weight\":1.0},{\"query\":2,\"key\":2,\"weight\":1.0}]",
        first.get("edges").toString());
    assertEquals(first.get("edges"), first.get("edges_without_first"));
    assertEquals(
        "[{\"query\":2,\"key\":2,\"weight\":4.5},{\"query\":1,\"key\":1,\"weight\":2.5}]",
        first.get("edges_by_norm").toString());
    JsonObject second = json.getAsJsonArray("stats").get(1).getAsJsonObject();
    assertEquals("[]", second.get("edges_without_first").toString());
    // half of layer 3 goes to the first token, layer 1 stays where it is
    assertEquals("[[1.0],[0.5,0.5],[0.5,0.0,0.5]]", json.get("rollout").toString());
  }

  @Test
  void arraysOfHeads() throws IOException {
    Path file = folder.resolve("s.npz");
    StatisticsFormat.NPZ.write(withHeads(), file);
    Npz npz = Npz.read(file);
    for (HeadScore score : HeadScore.values()) {
      assertEquals("<f4 [2, 1]", npz.get("head_" + score.key()).kind());
    }
    assertEquals(3, npz.get("head_entropy").data().getFloat(4));
    assertEquals(1, npz.get("head_self").data().getFloat(0));
    assertEquals(1, npz.get("head_first_token").data().getFloat(4));
    assertTrue(Float.isNaN(npz.get("head_induction").data().getFloat(0)));
    assertEquals("<i4 [2, 1, 8, 2]", npz.get("head_edges").kind());
    assertEquals(2, npz.get("head_edges").data().getInt(8));
    assertEquals(-1, npz.get("head_edges").data().getInt(16));
    assertEquals(1, npz.get("head_edges").data().getInt(64), "query 1 of layer 3");
    assertEquals(0, npz.get("head_edges").data().getInt(68), "read key 0");
    assertEquals("<f4 [2, 1, 8]", npz.get("head_edges_weights").kind());
    assertEquals(1, npz.get("head_edges_weights").data().getFloat(4));
    assertEquals(0, npz.get("head_edges_weights").data().getFloat(8));
    assertEquals(-1, npz.get("head_edges_without_first").data().getInt(64));
    assertEquals(4.5f, npz.get("head_edges_by_norm_weights").data().getFloat(0));
    assertEquals("<f4 [3, 3]", npz.get("rollout").kind());
    assertEquals(0.5f, npz.get("rollout").data().getFloat(12));
    assertEquals(0, npz.get("rollout").data().getFloat(20));
    assertEquals("<f4 [2, 1, 3]", npz.get("entropy").kind(), "that of rows");
  }

  @ParameterizedTest
  @EnumSource
  void aRunWithoutStatisticsWritesNothing(StatisticsFormat format) {
    Generation run = Runs.random(new int[] {0}, new int[] {0}, 1, false, "a");
    Path file = folder.resolve("none");
    assertThrows(IllegalStateException.class, () -> format.write(run, file));
    assertFalse(Files.exists(file));
  }
}
