/** Checkpoints of GPT-2: opened, checked, written and converted; and models by name, from a hub. */
module dev.loupe.weights {
  requires transitive com.google.gson;
  requires java.net.http;
  requires static transitive org.jspecify;

  exports dev.loupe.hub;
  exports dev.loupe.weights;
  exports dev.loupe.weights.config;
  exports dev.loupe.weights.io;
  exports dev.loupe.weights.tensor;
  exports dev.loupe.weights.vocabulary;
}
