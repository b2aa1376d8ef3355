"""3 x 3 convolutions by Winograd's F(4 x 4, 3 x 3): a quarter of the multiplications."""
