package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Generation;
import dev.loupe.attention.AttentionStatistics;
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
        Optional.empty(),
        Optional.empty(),
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
    NpzExportTest.Npz npz = NpzExportTest.read(file);
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

  @ParameterizedTest
  @EnumSource
  void aRunWithoutStatisticsWritesNothing(StatisticsFormat format) {
    Generation run = Runs.random(new int[] {0}, new int[] {0}, 1, false, "a");
    Path file = folder.resolve("none");
    assertThrows(IllegalStateException.class, () -> format.write(run, file));
    assertFalse(Files.exists(file));
  }
}
